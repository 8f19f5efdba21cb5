#!/usr/bin/env bash
# obstore 0.12.1 with pyarrow 26.0.1 (Python): Arrow takes an upload that was just opened for a closed file.
#
# Arrow asks a Python file for the attribute "closed". The writer of obstore.open_writer has a method of this name, and a
# method is true. So Arrow writes no stream, file or Parquet table to it, although its own write() takes the bytes. The
# reader of obstore.open_reader has no such attribute at all.
#
# Seen: closed() of the writer is False, PythonFile(writer).closed is True, and new_stream raises
# "I/O operation on closed file"; write() of the same writer returns 3.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install obstore==0.12.1 pyarrow==26.0.1
cat > "$folder/upload.py" <<'PY'
import obstore
import pyarrow as pa

writer = obstore.open_writer(obstore.store.MemoryStore(), "rows.arrow")
print("closed:", writer.closed(), "for Arrow:", pa.PythonFile(writer, mode="w").closed)
try:
    pa.ipc.new_stream(writer, pa.schema([("number", pa.int64())]))
    print("Arrow writes")
except ValueError as error:
    print(error)
print("itself:", writer.write(b"abc"))
PY
seen=$("$folder/venv/bin/python" "$folder/upload.py")
expected=$'closed: False for Arrow: True\nI/O operation on closed file\nitself: 3'
[ "$seen" = "$expected" ] || { echo "seen: $seen" >&2; exit 1; }
echo "an open upload is still a closed file for Arrow"
