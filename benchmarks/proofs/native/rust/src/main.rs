//! Decodes and verifies ICS-23 existence proofs with the crate `ics23` as often as it is told to, and says how long that took.
//!
//! The first argument names a file of records, a length (4 bytes, little-endian) and that many bytes each: the name of the
//! spec, the root, then key, value and proof of every claim. The second says how often all of them are verified a time.
//! Each line of standard input means: once more; the answer is the seconds it took by the clock and of the processor, or
//! `refused` when a claim was not accepted.
//!
//! With `verdicts` in its place, every claim has five records: spec, root, key, value (empty: absent) and proof; a line
//! each says true, false, or that the verifier stopped.
use std::env;
use std::fs;
use std::io::{self, BufRead, Write};
use std::panic;
use std::time::Instant;

use ics23::{CommitmentProof, HostFunctionsManager, ProofSpec};
use prost::Message;

extern "C" {
    fn clock() -> std::os::raw::c_long; // of the processor, in microseconds, by POSIX
}

fn processor_seconds() -> f64 {
    unsafe { clock() as f64 / 1e6 }
}

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

fn spec_named(name: &[u8]) -> ProofSpec {
    match name {
        b"iavl" => ics23::iavl_spec(),
        b"tendermint" => ics23::tendermint_spec(),
        _ => ics23::smt_spec(),
    }
}

fn holds(spec: &ProofSpec, root: &Vec<u8>, claim: &[Vec<u8>]) -> bool {
    let Ok(proof) = CommitmentProof::decode(claim[2].as_slice()) else {
        return false;
    };
    ics23::verify_membership::<HostFunctionsManager>(&proof, spec, root, &claim[0], &claim[1])
}

fn verdict(claim: &[Vec<u8>]) -> bool {
    let Ok(proof) = CommitmentProof::decode(claim[4].as_slice()) else {
        return false;
    };
    let spec = spec_named(&claim[0]);
    if claim[3].is_empty() {
        ics23::verify_non_membership::<HostFunctionsManager>(&proof, &spec, &claim[1], &claim[2])
    } else {
        ics23::verify_membership::<HostFunctionsManager>(&proof, &spec, &claim[1], &claim[2], &claim[3])
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let read = records(&fs::read(&arguments[1]).unwrap());
    if arguments[2] == "verdicts" {
        panic::set_hook(Box::new(|_| {}));
        for claim in read.chunks(5) {
            match panic::catch_unwind(|| verdict(claim)) {
                Ok(said) => println!("{said}"),
                Err(_) => println!("stopped"),
            }
        }
        return;
    }
    let times: usize = arguments[2].parse().unwrap();
    let (spec, root) = (spec_named(&read[0]), &read[1]);
    for line in io::stdin().lock().lines() {
        line.unwrap();
        let (begun, used) = (Instant::now(), processor_seconds());
        let good = (0..times).all(|_| read[2..].chunks(3).all(|claim| holds(&spec, root, claim)));
        if good {
            println!("{} {}", begun.elapsed().as_secs_f64(), processor_seconds() - used);
        } else {
            println!("refused");
        }
        io::stdout().flush().unwrap();
    }
}
