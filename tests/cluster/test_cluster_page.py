"""The page about clusters: its command runs on a standalone cluster of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.common.local_cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "cluster.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.cluster
def test_command_of_the_page_runs_with_a_relative_lake(tmp_path: Path) -> None:
    """Workers run in folders of their own, where a relative path would be another lake."""
    (command,) = re.findall(r"^causeway (run \S+ --master spark://127\.0\.0\.1:7077 .*)$", PAGE, re.MULTILINE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}

    def run(folder: str, arguments: list[str]) -> list[str]:
        (tmp_path / folder).mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "causeway", *arguments],
            cwd=tmp_path / folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return re.findall(r"^Root ([0-9a-f]{64})$", done.stdout, re.MULTILINE)

    with LocalCluster(workers=2, cores=1) as cluster:
        given = command.replace("spark://127.0.0.1:7077", cluster.master_url).split()
        given[1] = str(ROOT / given[1])
        on_cluster = run("cluster", given)
    alone = ["run", given[1], "--executor", "in_process", "--lake", "cluster-lake"]
    assert on_cluster == run("alone", alone) != []
