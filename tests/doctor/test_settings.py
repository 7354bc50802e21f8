"""Variables that change the behaviour of the runtimes; values of proxies are not shown."""

from pathlib import Path

import pytest

from pyreactant.doctor import accelerators
from pyreactant.doctor.check import CheckResult
from tests.doctor.machines import jax_packages, machine, nvidia_driver, package, tpu_chips


def test_nothing_is_set(tmp_path: Path) -> None:
    here = machine(tmp_path)
    checks = (
        accelerators.proxies,
        accelerators.preload,
        accelerators.library_path,
        accelerators.xla_flags,
        accelerators.libtpu_args,
        accelerators.gpu_memory,
        accelerators.hidden_devices,
    )
    assert [check(here).status for check in checks] == ["pass"] * 7


def test_proxies(tmp_path: Path) -> None:
    environ = {"http_proxy": "http://me:pa55word@proxy:3128", "ALL_PROXY": "x", "no_proxy": "y"}
    found = accelerators.proxies(machine(tmp_path, environ=environ))
    assert (found.status, found.mend) == ("warn", "unset http_proxy ALL_PROXY")
    assert found.found.startswith("http_proxy, ALL_PROXY set: gRPC")
    assert "pa55word" not in str(found)


def test_preload(tmp_path: Path) -> None:
    environ = {"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4:/opt/x.so"}
    found = accelerators.preload(machine(tmp_path, environ=environ))
    assert (found.status, found.mend) == ("warn", "unset LD_PRELOAD")
    assert found.found.startswith("libtcmalloc.so.4, x.so: Reactant is not started")


def test_library_path(tmp_path: Path) -> None:
    toolkit, driver = "/usr/local/cuda-12.4/lib64", "/usr/local/nvidia/lib64"
    here = machine(tmp_path, environ={"LD_LIBRARY_PATH": f"/opt/lib:{toolkit}::/absent/cuda"})
    for folder, name in ((toolkit, "libcudnn.so.9"), (driver, "libcuda.so.1")):
        here.file(folder).mkdir(parents=True)
        here.file(f"{folder}/{name}").touch()
    assert accelerators.library_path(here).status == "pass"  # it does not hide a setting of JAX
    jax_packages(tmp_path)
    package(tmp_path, "jax-cuda12-plugin", "0.10.2")
    found = accelerators.library_path(here)
    assert (found.status, found.mend) == ("warn", "unset LD_LIBRARY_PATH")
    assert found.found.startswith(f"{toolkit}: ")
    # NVIDIA's containers have the driver's folder in it, without which CUDA does not start.
    here = machine(tmp_path, environ={"LD_LIBRARY_PATH": driver})
    assert accelerators.library_path(here).status == "pass"


class TestFlags:
    """The effect of each flag was observed with jax 0.12."""

    def result_of(self, folder: Path, value: str, name: str = "XLA_FLAGS") -> CheckResult:
        check = accelerators.xla_flags if name == "XLA_FLAGS" else accelerators.libtpu_args
        return check(machine(folder, environ={name: value}))

    def test_right(self, tmp_path: Path) -> None:
        flags = "--xla_force_host_platform_device_count=8 --xla_dump_to='/tmp/a b'"
        assert self.result_of(tmp_path, flags).status == "pass"

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        (tmp_path / "root" / "flags").write_text("--xla_x=1")
        assert self.result_of(tmp_path, "/flags").found == "read from the file /flags"
        found = self.result_of(tmp_path, "xla_gpu_autotune_level=0")
        assert (found.status, found.mend) == ("fail", "unset XLA_FLAGS")

    def test_one_dash(self, tmp_path: Path) -> None:
        found = self.result_of(tmp_path, "-xla_a=1 --xla_b=2")
        assert (found.status, found.mend) == ("fail", "export XLA_FLAGS=--xla_b=2")

    def test_of_the_tpu(self, tmp_path: Path) -> None:
        found = self.result_of(tmp_path, "--xla_tpu_scoped_vmem_limit_kib=1")
        assert (found.status, found.mend) == ("fail", "unset XLA_FLAGS")
        assert "belong in LIBTPU_INIT_ARGS" in found.found

    def test_of_gpus(self, tmp_path: Path) -> None:
        found = self.result_of(tmp_path, "--xla_gpu_x=1", "LIBTPU_INIT_ARGS")
        assert (found.status, found.mend) == ("fail", "unset LIBTPU_INIT_ARGS")

    def test_commas(self, tmp_path: Path) -> None:
        found = self.result_of(tmp_path, "--xla_a=1,--xla_b=2")
        assert (found.status, found.mend) == ("warn", "export XLA_FLAGS='--xla_a=1 --xla_b=2'")

    def test_twice(self, tmp_path: Path) -> None:
        found = self.result_of(tmp_path, "--xla_a=1 --xla_a=2 --xla_b --xla_b")
        assert found.status == "warn"
        assert found.found.endswith("of which the last counts: --xla_a")


class TestMemory:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("XLA_PYTHON_CLIENT_MEM_FRACTION", "75"),
            ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0"),
            ("XLA_REACTANT_GPU_MEM_FRACTION", "half"),
            ("XLA_REACTANT_GPU_MEM_FRACTION", "nan"),
            ("XLA_REACTANT_GPU_PREALLOCATE", "False"),
            ("XLA_PYTHON_CLIENT_PREALLOCATE", "no"),
        ],
    )
    def test_wrong(self, tmp_path: Path, name: str, value: str) -> None:
        found = accelerators.gpu_memory(machine(tmp_path, environ={name: value}))
        assert (found.status, found.mend) == ("warn", f"unset {name}")
        assert f"{name}={value}" in found.found

    def test_right(self, tmp_path: Path) -> None:
        environ = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".4", "XLA_REACTANT_GPU_PREALLOCATE": "false"}
        found = accelerators.gpu_memory(machine(tmp_path, environ=environ))
        assert found.status == "pass"
        assert "XLA_PYTHON_CLIENT_MEM_FRACTION=.4" in found.found

    def test_the_default(self, tmp_path: Path) -> None:
        nvidia_driver(tmp_path, 1)
        assert "75 %" in accelerators.gpu_memory(machine(tmp_path)).found


class TestHidden:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("CUDA_VISIBLE_DEVICES", ""),
            ("CUDA_VISIBLE_DEVICES", "-1"),
            ("JAX_PLATFORMS", "cpu"),
            ("REACTANT_VISIBLE_GPU_DEVICES", ""),
            ("PYREACTANT_PLATFORM", "cpu"),
        ],
    )
    def test_gpus(self, tmp_path: Path, name: str, value: str) -> None:
        here = machine(tmp_path, environ={name: value})
        assert accelerators.hidden_devices(here).status == "pass"
        nvidia_driver(tmp_path, 4)
        found = accelerators.hidden_devices(here)
        assert (found.status, found.mend) == ("warn", f"unset {name}")
        assert found.found == f"{name}={value} hides this machine's 4 GPUs"

    def test_a_tpu(self, tmp_path: Path) -> None:
        tpu_chips(tmp_path, 4)
        hiding = machine(tmp_path, environ={"JAX_PLATFORMS": "cpu"})
        assert (
            accelerators.hidden_devices(hiding).found
            == "JAX_PLATFORMS=cpu hides this machine's 4 TPU chips"
        )
        assert (
            accelerators.hidden_devices(
                machine(tmp_path, environ={"JAX_PLATFORMS": "tpu,cpu"})
            ).status
            == "pass"
        )

    def test_some_gpus_are_not_hidden(self, tmp_path: Path) -> None:
        nvidia_driver(tmp_path, 4)
        environ = {"CUDA_VISIBLE_DEVICES": "0,1", "JAX_PLATFORMS": "cuda,cpu"}
        assert accelerators.hidden_devices(machine(tmp_path, environ=environ)).status == "pass"

    def test_float64(self, tmp_path: Path) -> None:
        found = accelerators.hidden_devices(machine(tmp_path, environ={"JAX_ENABLE_X64": "0"}))
        assert (found.status, found.mend) == ("warn", "unset JAX_ENABLE_X64")
