//! What the crate `ic-certificate-verification` says of certificates, a line each.
//!
//! The argument names a file of records, a length (4 bytes, little-endian) and that many bytes each. Five are a claim:
//! the certificate, the canister, the root key in DER, the time and how far the certificate's may be from it (in
//! nanoseconds, 16 bytes each).
use std::{env, fs, panic};

use ic_cbor::CertificateToCbor;
use ic_certificate_verification::VerifyCertificate;
use ic_certification::Certificate;

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

fn holds(claim: &[Vec<u8>]) -> bool {
    let number = |place: usize| u128::from_le_bytes(claim[place][..].try_into().unwrap());
    let Ok(certificate) = Certificate::from_cbor(&claim[0]) else {
        return false;
    };
    certificate.verify(&claim[1], &claim[2], &number(3), &number(4)).is_ok()
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let path = env::args().nth(1).unwrap();
    for claim in records(&fs::read(path).unwrap()).chunks(5) {
        match panic::catch_unwind(|| holds(claim)) {
            Ok(said) => println!("{said}"),
            Err(_) => println!("stopped"),
        }
    }
}
