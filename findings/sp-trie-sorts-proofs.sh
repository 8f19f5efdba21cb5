#!/usr/bin/env bash
# sp-trie 41.1.0 (Rust): a StorageProof is a set. Nodes in another order are the same proof, and other bytes.
#
# Nodes and light clients carry a storage proof as a list of trie nodes in SCALE, and "a proof" looks like what was
# received. StorageProof::new puts the nodes into a BTreeSet: they are sorted by their bytes, a node that came twice is
# there once, and encode() writes that form. Who hashes or signs a proof, or compares it with the bytes that arrived,
# gets another digest for the same proof: not the order in which a node's RPC lists them, nor root first.
#
# Seen: nodes c, a, b, a: iterated as a, b, c; the encoding has 7 bytes where that of the list has 9.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/src"
cd "$folder"
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"

[dependencies]
sp-trie = { version = "=41.1.0", default-features = false, features = ["std"] }
parity-scale-codec = "=3.7.5"

[profile.dev]
debug = false
TOML
cat > src/main.rs <<'RUST'
use parity_scale_codec::Encode;
use sp_trie::StorageProof;

fn main() {
    let nodes: Vec<Vec<u8>> = ["c", "a", "b", "a"].iter().map(|node| node.as_bytes().to_vec()).collect();
    let proof = StorageProof::new(nodes.clone());
    let order: Vec<String> = proof.iter_nodes().map(|node| String::from_utf8(node.clone()).unwrap()).collect();
    println!("{} {} {}", order.join(""), proof.encode().len(), nodes.encode().len());
}
RUST
cargo build --quiet
seen=$(target/debug/finding)
echo "order, bytes of the proof, bytes of the list: $seen"
[ "$seen" = "abc 7 9" ] || { echo "changed" >&2; exit 1; }
