//! Tells how ibc-rs and ic_principal read and write texts: a JSON object of lists on standard input, an object with
//! the same names on standard output; null where a text is refused.

use ibc_app_transfer_types::packet::PacketData;
use ibc_app_transfer_types::{Amount, PrefixedCoin, PrefixedDenom};
use ibc_core_client_types::Height;
use ic_principal::Principal;
use serde_json::{json, Value};

fn texts(given: &Value) -> Vec<&str> {
    given.as_array().map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn written(packet: &Value) -> Value {
    let parts = texts(packet);
    let data = PacketData {
        token: PrefixedCoin { denom: parts[0].parse().unwrap(), amount: parts[1].parse().unwrap() },
        sender: parts[2].to_string().into(),
        receiver: parts[3].to_string().into(),
        memo: parts[4].to_string().into(),
    };
    json!(hex(&serde_json::to_vec(&data).unwrap()))
}

fn packet(digits: &str) -> Option<Value> {
    let data: PacketData = serde_json::from_slice(&bytes(digits)).ok()?;
    let token = data.token;
    Some(json!([token.denom.to_string(), token.amount.to_string(), data.sender.as_ref(), data.receiver.as_ref(), data.memo.as_ref()]))
}

fn amount(text: &str) -> Option<Value> {
    Some(json!(text.parse::<Amount>().ok()?.to_string()))
}

fn denom(text: &str) -> Option<Value> {
    let found: PrefixedDenom = text.parse().ok()?;
    let path = found.trace_path.to_string();
    let parts: Vec<&str> = path.split('/').collect();
    let hops: Vec<String> = parts.chunks_exact(2).map(|hop| hop.join("/")).collect();
    Some(json!({ "hops": hops, "base": found.base_denom.to_string() }))
}

fn height(text: &str) -> Option<Value> {
    let found: Height = text.parse().ok()?;
    Some(json!([found.revision_number(), found.revision_height()]))
}

fn principal(text: &str) -> Option<Value> {
    Some(json!(hex(Principal::from_text(text).ok()?.as_slice())))
}

fn main() {
    let given: Value = serde_json::from_reader(std::io::stdin()).unwrap();
    let read = |name: &str, reader: fn(&str) -> Option<Value>| texts(&given[name]).into_iter().map(reader).collect::<Vec<_>>();
    let packets: Vec<Value> = given["packets"].as_array().map(|all| all.iter().map(written).collect()).unwrap_or_default();
    println!(
        "{}",
        json!({
            "packets": packets,
            "payloads": read("payloads", packet),
            "amounts": read("amounts", amount),
            "denoms": read("denoms", denom),
            "heights": read("heights", height),
            "principals": read("principals", principal),
        })
    );
}
