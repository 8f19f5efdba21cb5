//! What `tendermint-light-client-verifier` says of updates to a header, a line each.
//!
//! The argument names a file of records, a length (4 bytes, little-endian) and that many bytes each. Nine are an update:
//! the trusted signed header and the validators that it names as the next, the new signed header and its validators (all
//! protobuf); the time, the trusting period and the clock drift in nanoseconds, and the trust level as numerator and
//! denominator (8 bytes each).
use std::time::Duration;
use std::{env, fs, panic};

use prost::Message;
use tendermint::block::signed_header::SignedHeader;
use tendermint::validator::Set;
use tendermint::Time;
use tendermint_light_client_verifier::errors::VerificationErrorDetail;
use tendermint_light_client_verifier::options::Options;
use tendermint_light_client_verifier::types::{TrustThreshold, TrustedBlockState, UntrustedBlockState};
use tendermint_light_client_verifier::{ProdVerifier, Verdict, Verifier};
use tendermint_proto::v0_38::types as wire;

fn records(data: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let length = u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize;
        found.push(data[at + 4..at + 4 + length].to_vec());
        at += 4 + length;
    }
    found
}

fn number(field: &[u8]) -> u64 {
    u64::from_le_bytes(field.try_into().unwrap())
}

fn verdict(update: &[Vec<u8>]) -> Option<&'static str> {
    let header = |at: usize| SignedHeader::try_from(wire::SignedHeader::decode(&update[at][..]).ok()?).ok();
    let set = |at: usize| Set::try_from(wire::ValidatorSet::decode(&update[at][..]).ok()?).ok();
    let (trusted, next, untrusted, validators) = (header(0)?, set(1)?, header(2)?, set(3)?);
    let now = number(&update[4]);
    let now = Time::from_unix_timestamp((now / 1_000_000_000) as i64, (now % 1_000_000_000) as u32).ok()?;
    let options = Options {
        trust_threshold: TrustThreshold::new(number(&update[7]), number(&update[8])).ok()?,
        trusting_period: Duration::from_nanos(number(&update[5])),
        clock_drift: Duration::from_nanos(number(&update[6])),
    };
    let found = ProdVerifier::default().verify_update_header(
        UntrustedBlockState { signed_header: &untrusted, validators: &validators, next_validators: None },
        TrustedBlockState {
            chain_id: &trusted.header.chain_id,
            header_time: trusted.header.time,
            height: trusted.header.height,
            next_validators: &next,
            next_validators_hash: trusted.header.next_validators_hash,
        },
        &options,
        now,
    );
    Some(match found {
        Verdict::Success => "true",
        Verdict::NotEnoughTrust(_) => "unknown",
        Verdict::Invalid(VerificationErrorDetail::NotWithinTrustPeriod(_)) => "expired",
        Verdict::Invalid(_) => "false",
    })
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let path = env::args().nth(1).unwrap();
    for update in records(&fs::read(path).unwrap()).chunks(9) {
        let said = panic::catch_unwind(|| verdict(update)).map(|said| said.unwrap_or("false"));
        println!("{}", said.unwrap_or("stopped"));
    }
}
