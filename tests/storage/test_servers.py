"""The tests' own servers do what the other tests take for granted."""

import contextlib
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from streaming.storage import StoreError, store_for
from tests.servers.moto import CREDENTIALS, botocore_client, server_process
from tests.servers.proxy import Fault, FaultProxy


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_spoils_the_same_requests(moto_url, seed):
    drawn = []
    for _ in range(2):
        with FaultProxy(moto_url, seed=seed) as proxy:
            proxy.add(Fault(status=503, share=0.3))
            drawn.append([fetch(f"{proxy.url}/{i}") == 503 for i in range(30)])
            assert proxy.spoiled == sum(drawn[-1]) > 0
            assert proxy.count() == 30
    assert drawn[0] == drawn[1]


def test_faults_are_chosen_by_method_key_and_number(moto_url):
    with FaultProxy(moto_url) as proxy:
        proxy.add(Fault(status=418, key="/a$", skip=1, times=2))
        proxy.add(Fault(status=507, key="/a$", method="PUT"))
        assert [fetch(f"{proxy.url}/a") == 418 for _ in range(4)] == [False, True, True, False]
        assert fetch(f"{proxy.url}/b") != 418
        assert proxy.count("/a$") == 4
        proxy.clear()
        assert proxy.count() == 0


def test_a_server_in_a_process_of_its_own(tmp_path):
    with server_process() as url, FaultProxy(url) as proxy:
        botocore_client(url).create_bucket(Bucket="bucket")
        store = store_for("s3://bucket", endpoint_url=proxy.url, **CREDENTIALS)
        (tmp_path / "x").write_bytes(b"data")
        store.put(tmp_path / "x", "x")
        assert store.get_range("x", 0, 4) == b"data"
        assert proxy.bytes("x") == 4


def test_answers_stall_in_a_process_with_many_open_files(moto_url, tmp_path):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("files are few here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    (tmp_path / "x").write_bytes(bytes(1000))
    botocore_client(moto_url).create_bucket(Bucket="many-files")
    with contextlib.ExitStack() as files, FaultProxy(moto_url) as proxy:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        store = store_for("s3://many-files", endpoint_url=proxy.url, timeout_s=0.5, **CREDENTIALS)
        store.put(tmp_path / "x", "x")
        proxy.add(Fault(method="GET", stall_after=100))
        with pytest.raises(StoreError, match="in time"):
            store.get_range("x", 0, 1000)


def test_examples_need_no_pytest():
    code = (
        "import sys, tests.servers.moto, tests.servers.proxy, tests.servers.certificates\n"
        "print('pytest' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
