//! What the crates `sp-trie`, `polkadot-ckb-merkle-mountain-range` and `ckb-merkle-mountain-range` say of proofs, a line
//! each.
//!
//! The argument names a file of records, a length (4 bytes, little-endian) and that many bytes each. Four are a claim:
//! `V0` or `V1`, the root of a state, the entries (records again: key, and nothing or 01 and the value) and the nodes
//! (records); or `mmr` or `ckb`, the root of a range, the size of the range (8 bytes) and its leaves (records: position, 8 bytes,
//! and hash), and the items of the proof (records).
use std::{env, fs, panic};

use ckb_merkle_mountain_range as ckb;
use polkadot_ckb_merkle_mountain_range as polkadot;
use sp_core::{Blake2Hasher, H256};
use sp_trie::{LayoutV0, LayoutV1, StorageProof, Trie, TrieDBBuilder, TrieLayout};

struct Keccak;

fn parent(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    sp_core::keccak_256(&[&left[..], &right[..]].concat())
}

impl polkadot::Merge for Keccak {
    type Item = [u8; 32];

    fn merge(left: &Self::Item, right: &Self::Item) -> Result<Self::Item, polkadot::Error> {
        Ok(parent(left, right))
    }
}

impl ckb::Merge for Keccak {
    type Item = [u8; 32];

    fn merge(left: &Self::Item, right: &Self::Item) -> Result<Self::Item, ckb::Error> {
        Ok(parent(left, right))
    }
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

fn stored<L: TrieLayout<Hash = Blake2Hasher>>(claim: &[Vec<u8>]) -> bool {
    let root = H256::from_slice(&claim[1]);
    let nodes = StorageProof::new(records(&claim[3])).into_memory_db::<Blake2Hasher>();
    let trie = TrieDBBuilder::<L>::new(&nodes, &root).build();
    records(&claim[2]).chunks(2).all(|entry| match trie.get(&entry[0]) {
        Ok(found) => found == entry[1].split_first().map(|(_, value)| value.to_vec()),
        Err(_) => false,
    })
}

fn in_range(claim: &[Vec<u8>]) -> bool {
    let hash = |data: &Vec<u8>| -> [u8; 32] { data[..].try_into().unwrap() };
    let number = |data: &[u8]| u64::from_le_bytes(data.try_into().unwrap());
    let about = records(&claim[2]);
    let leaves: Vec<_> = about[1..].chunks(2).map(|leaf| (number(&leaf[0]), hash(&leaf[1]))).collect();
    let items: Vec<_> = records(&claim[3]).iter().map(hash).collect();
    let (size, root) = (number(&about[0]), hash(&claim[1]));
    if claim[0] == b"ckb" {
        return ckb::MerkleProof::<_, Keccak>::new(size, items).verify(root, leaves).unwrap_or(false);
    }
    polkadot::MerkleProof::<_, Keccak>::new(size, items).verify(root, leaves).unwrap_or(false)
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let path = env::args().nth(1).unwrap();
    for claim in records(&fs::read(path).unwrap()).chunks(4) {
        let said = panic::catch_unwind(|| match &claim[0][..] {
            b"V0" => stored::<LayoutV0<Blake2Hasher>>(claim),
            b"V1" => stored::<LayoutV1<Blake2Hasher>>(claim),
            _ => in_range(claim),
        });
        println!("{}", said.map(|said| said.to_string()).unwrap_or("stopped".into()));
    }
}
