#!/usr/bin/env bash
# scalecodec 1.2.12 and cyscale 0.8.0 (Python): what was decoded is encoded to other bytes, of valid input.
#
# "Bytes" is decoded to text where it is UTF-8 and to hexadecimal text where it is not; encoding takes any text that
# begins with 0x for the latter. A string of the six characters 0x6869 comes back as the two characters "hi". A BitVec
# is encoded from a number: bits that are 0 at its end, and how many there were, are lost.
#
# Seen: 18307836383639 comes back as 086869; the five bits 1405 as the three bits 0c05, five zero bits 1400 as none, 00.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/again.py" <<'PY'
from scalecodec.base import RuntimeConfigurationObject, ScaleBytes

types = RuntimeConfigurationObject()
for name, data in (("Bytes", "18307836383639"), ("BitVec", "1405"), ("BitVec", "1400")):
    value = types.create_scale_object(name, ScaleBytes("0x" + data)).decode()
    print(name, data, types.create_scale_object(name).encode(value).to_hex()[2:])
PY
for package in scalecodec==1.2.12 cyscale==0.8.0; do
    python3 -m venv "$folder/$package"
    "$folder/$package/bin/pip" --quiet --disable-pip-version-check install "$package"
    seen=$("$folder/$package/bin/python" "$folder/again.py")
    expected=$'Bytes 18307836383639 086869\nBitVec 1405 0c05\nBitVec 1400 00'
    [ "$seen" = "$expected" ] || { echo "$package: seen: $seen" >&2; exit 1; }
done
echo "both still write other bytes than they read"
