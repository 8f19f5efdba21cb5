#!/usr/bin/env bash
# cyscale 0.8.0 and scalecodec 1.2.12 (Python): both install into the folder scalecodec/, and cyscale answers the import.
#
# async-substrate-interface 2.2.1 needs cyscale. Where scalecodec is installed too, in either order, `import scalecodec`
# loads cyscale's compiled modules, while pip lists both and finds nothing broken. They are not the same: a BTreeMap is
# decoded to a dict by cyscale and to a list of pairs by scalecodec. Uninstalling cyscale takes files of scalecodec away,
# which pip goes on listing and which can no longer be imported.
#
# Seen: [(1, True)] from scalecodec alone; {1: True} with cyscale beside it, whichever came first; after
# `pip uninstall cyscale`: No module named 'scalecodec.constants', and pip check reports no broken requirement.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
pip() { "$folder/bin/pip" --quiet --disable-pip-version-check "$@"; }
cat > "$folder/decode.py" <<'PY'
from scalecodec.base import RuntimeConfigurationObject, ScaleBytes

print(RuntimeConfigurationObject().create_scale_object("BTreeMap<u8, bool>", ScaleBytes("0x040101")).decode())
PY
decode() { "$folder/bin/python" "$folder/decode.py" 2>&1 | tail -n 1; }
expect() { [ "$1" = "$2" ] || { echo "seen: $1; expected: $2" >&2; exit 1; }; }

pip install scalecodec==1.2.12
expect "$(decode)" "[(1, True)]"
pip install cyscale==0.8.0
expect "$(decode)" "{1: True}"
pip uninstall --yes cyscale
pip check
expect "$(decode)" "ModuleNotFoundError: No module named 'scalecodec.constants'"
pip uninstall --yes scalecodec
pip install cyscale==0.8.0
pip install scalecodec==1.2.12
expect "$(decode)" "{1: True}"
echo "cyscale still replaces scalecodec"
