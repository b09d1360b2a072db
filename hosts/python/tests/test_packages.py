"""Packages that announce a plugin, as pip installs them."""

import compileall
import importlib.util
import json
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import fl
import pytest

EXAMPLE = Path(__file__).parents[3] / "plugins" / "example-python"


def installed(site: Path, name: str, source: str, version: str = "0.1.0", more: dict[str, str] = {}):
    """What pip leaves in `site-packages` of a wheel with a module, and perhaps more files."""
    module = name.removeprefix("fl-").replace("-", "_")
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[fl.plugins]\nplugin = {module}\n")
    files = {f"{module}.py": source, **more}
    for file, text in files.items():
        (site / file).parent.mkdir(exist_ok=True, parents=True)
        (site / file).write_text(text)
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def spec(fedavg, package: str, aggregator: str) -> dict:
    return {**fedavg, "plugins": [{"package": package}], "parts": {**fedavg["parts"], "aggregator": {"use": aggregator}}}


def test_a_package_is_a_plugin_only_where_a_spec_names_it(fedavg, tmp_path, monkeypatch):
    source = (EXAMPLE / "py_trimmed.py").read_text()
    installed(tmp_path / "site", "fl-py-trimmed", source)
    monkeypatch.syspath_prepend(tmp_path / "site")
    # the columns of the list break where a path is long
    listed = fl._tools.command("plugin", "list")
    assert "fl-py-trimmed" in listed and "0.1.0" in listed
    assert "py_trimmed" not in sys.modules
    named = fl.run(spec(fedavg, "fl-py-trimmed", "py-trimmed"), quiet=True)
    by_module = spec(fedavg, "fl-py-trimmed", "py-trimmed") | {"plugins": [{"module": "py_trimmed"}]}
    assert named.digest == fl.run(by_module, quiet=True).digest
    text = (named.folder / "spec.yaml").read_text()
    assert "package: fl-py-trimmed" in text and "version: 0.1.0" in text
    with pytest.raises(fl.SpecError, match="it is not installed in .*`pip install 'fl-other'`"):
        fl.check(spec(fedavg, "fl-other", "mean"))
    with pytest.raises(fl.SpecError, match="version 2 is wanted, and 0.1.0 is installed"):
        fl.check(fedavg | {"plugins": [{"package": "fl-py-trimmed", "version": "2"}]})


def test_a_locked_package_is_hashed_before_it_is_imported(fedavg, tmp_path, monkeypatch):
    source = (EXAMPLE / "py_trimmed.py").read_text().replace("py-trimmed", "py-locked")
    installed(tmp_path / "site", "fl-locked-mean", source)
    monkeypatch.syspath_prepend(tmp_path / "site")
    text = spec(fedavg, "fl-locked-mean", "py-locked")
    Path("spec.yaml").write_text(fl._spec.flow(text))
    with pytest.raises(fl.SpecError, match="does not pin it"):
        fl.run("spec.yaml", locked=True, quiet=True)
    assert "1 plugin pinned" in fl._tools.command("lock", "spec.yaml")
    assert "platform: any" in Path("fl.lock").read_text()
    fl.run("spec.yaml", locked=True, quiet=True)
    run = 'open("it-ran", "w").close()\n'
    (tmp_path / "site" / "locked_mean.py").write_text(source + run)
    with pytest.raises(fl.SpecError, match="its sha256 is"):
        fl.run("spec.yaml", locked=True, quiet=True)
    assert not Path("it-ran").exists()
    with pytest.raises(fl.SpecError, match="leave it out"):
        fl.run(resume="runs/spec-1", locked=True)


HELPED = """import fl
import helped_mean_helper


@fl.aggregator("helped-mean")
class HelpedMean:
    \"\"\"A mean.\"\"\"

    def aggregate(self, round, inbox):
        from helped_mean_tools import deep
        from helped_space import inner

        return {name: helped_mean_helper.mean([mail[name] for mail in inbox]) * deep.ONE * inner.ONE for name in inbox[0]}
"""
HELPER = """import numpy as np


def mean(all):
    return np.stack(all).mean(axis=0, dtype=np.float64)
"""
RUN = 'open("it-ran", "w").close()\n'


def helped(site: Path):
    """A package with several top-level modules and data, and bytecode of them as pip compiles
    it."""
    installed(site, "fl-helped-mean", HELPED, more={
        "helped_mean_helper.py": HELPER, "helped_mean_tools/__init__.py": "", "helped_mean_tools/deep.py": "ONE = 1.0\n",
        "helped_mean_tools/table.json": "[1]", "helped_mean_data.json": "[1]", "helped_space/inner/__init__.py": "ONE = 1.0\n",
    })
    compileall.compile_dir(site, quiet=1)


def same_time(path: Path, text: str):
    """Changes a source so that its bytecode still counts as that of the source."""
    about = path.stat()
    path.write_text(text.ljust(about.st_size)[: about.st_size])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def compiled_of(text: str, source: Path, to: Path, checks: bool):
    """Bytecode of another text, which Python would take for that of the source, or runs without
    one."""
    other = source.with_name("other.py")
    other.write_text(text)
    py_compile.compile(str(other), cfile=str(to))
    other.unlink()
    if checks:
        about, data = source.stat(), bytearray(to.read_bytes())
        data[8:16] = int(about.st_mtime).to_bytes(4, "little") + about.st_size.to_bytes(4, "little")
        to.write_bytes(data)


CHANGES = {
    "a helper": lambda site: (site / "helped_mean_helper.py").write_text(RUN + HELPER),
    "a helper whose bytecode counts": lambda site: same_time(site / "helped_mean_helper.py", HELPER.replace("mean(axis", "sum(axis")),
    "a module inside": lambda site: (site / "helped_mean_tools" / "deep.py").write_text(RUN + "ONE = 1.0\n"),
    "a module in a folder of several packages": lambda site: (site / "helped_space" / "inner" / "__init__.py").write_text(RUN + "ONE = 1.0\n"),
    "data inside": lambda site: (site / "helped_mean_tools" / "table.json").write_text("[2]"),
    "data": lambda site: (site / "helped_mean_data.json").write_text("[2]"),
    "added data": lambda site: (site / "helped_mean_tools" / "more.json").write_text("[2]"),
    "a compiled module beside": lambda site: (site / "helped_mean_helper.abi3.so").write_bytes(b"compiled"),
    "bytecode in place of a source": lambda site: compiled_of(RUN + HELPER, site / "helped_mean_helper.py", site / "helped_mean_helper.pyc", False),
    "a package in place of a module": lambda site: ((site / "helped_mean_helper").mkdir(), (site / "helped_mean_helper" / "__init__.py").write_text(RUN + HELPER)),
    "its list of files": lambda site: [record.write_text(record.read_text().replace("helped_mean_helper.py,,\n", "")) for record in site.glob("*.dist-info/RECORD")],
    "no list of files": lambda site: [record.unlink() for record in site.glob("*.dist-info/RECORD")],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_of_a_locked_package_is_refused_before_anything_of_it_runs(change, fedavg, tmp_path):
    """In a process of its own, as a user meets it: exit code 3, also of a run that goes on."""
    site = tmp_path / "site"
    helped(site)
    Path("spec.yaml").write_text(fl._spec.flow(spec(fedavg, "fl-helped-mean", "helped-mean")))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}

    def program(*args: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "fl", *args], env=env, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    for args in [("lock", "spec.yaml"), ("run", "spec.yaml", "--locked", "--out", "a"), ("run", "spec.yaml", "--out", "b", "--stop-after", "1")]:
        code, text = program(*args)
        assert code == 0, text
    assert "platform: any" in Path("fl.lock").read_text()
    CHANGES[change](site)
    for args in [("run", "spec.yaml", "--locked", "--out", "c"), ("run", "--resume", "b")]:
        code, text = program(*args)
        assert code == 3 and ("its sha256 is" in text or "no RECORD" in text), text
    assert not Path("it-ran").exists()


def test_bytecode_that_was_not_hashed_never_runs(fedavg, tmp_path):
    """Python would take it for that of the source beside it. Lines with one time and size prove
    nothing to fl."""
    site = tmp_path / "site"
    helped(site)
    for source in [site / "helped_mean_helper.py", site / "helped_mean.py", site / "helped_mean_tools" / "deep.py"]:
        compiled_of(RUN + source.read_text(), source, Path(importlib.util.cache_from_source(str(source))), True)
    Path("spec.yaml").write_text(fl._spec.flow(spec(fedavg, "fl-helped-mean", "helped-mean")))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    plain = [sys.executable, "-c", "import helped_mean_helper"]
    subprocess.run(plain, env=env, check=True)
    assert Path("it-ran").exists(), "Python by itself runs it"
    Path("it-ran").unlink()
    subprocess.run([sys.executable, "-m", "fl", "run", "spec.yaml", "--quiet"], env=env, check=True, capture_output=True)
    assert not Path("it-ran").exists()


def test_a_module_that_this_process_has_is_imported_again_from_the_hashed_files(fedavg, tmp_path, monkeypatch):
    helped(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    import helped_mean_helper  # type: ignore[import-not-found]

    before = helped_mean_helper
    first = fl.run(spec(fedavg, "fl-helped-mean", "helped-mean"), quiet=True)
    now = sys.modules["helped_mean_helper"]
    assert now is not before
    again = fl.run(spec(fedavg, "fl-helped-mean", "helped-mean"), quiet=True)
    assert first.digest == again.digest and sys.modules["helped_mean_helper"] is now
    # installed anew
    (tmp_path / "site" / "helped_mean_helper.py").write_text(HELPER.replace("np.float64)", "np.float64) * 2"))
    assert fl.run(spec(fedavg, "fl-helped-mean", "helped-mean"), quiet=True).digest != first.digest


def test_a_package_without_a_list_of_its_files_runs_and_cannot_be_pinned(fedavg, tmp_path, monkeypatch):
    source = (EXAMPLE / "py_trimmed.py").read_text().replace("py-trimmed", "py-unlisted")
    installed(tmp_path / "site", "fl-unlisted", source)
    next((tmp_path / "site").glob("*.dist-info/RECORD")).unlink()
    monkeypatch.syspath_prepend(tmp_path / "site")
    Path("spec.yaml").write_text(fl._spec.flow(spec(fedavg, "fl-unlisted", "py-unlisted")))
    assert fl.run("spec.yaml", quiet=True).digest
    with pytest.raises(fl.SpecError, match="it has no RECORD with its module"):
        fl._tools.command("lock", "spec.yaml")
    assert not Path("fl.lock").exists()


def test_levels_of_trust_are_refused_before_anything_is_imported(fedavg, tmp_path, monkeypatch):
    installed(tmp_path / "site", "fl-trusted-mean", RUN)
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(fl.SpecError, match="plugins-trust: fl has no index of plugins and no levels of trust"):
        fl.check(spec(fedavg, "fl-trusted-mean", "mean") | {"plugins-trust": "published"})
    monkeypatch.setenv("FL_PLUGINS_TRUST", "published")
    with pytest.raises(fl.SpecError, match="FL_PLUGINS_TRUST: fl has no index of plugins"):
        fl.check(spec(fedavg, "fl-trusted-mean", "mean"))
    assert not Path("it-ran").exists()


@pytest.mark.parametrize("lang", ["c", "python"])
def test_what_fl_new_writes_is_a_wheel(lang, fedavg, tmp_path, monkeypatch):
    pytest.importorskip("setuptools", minversion="70.1")
    if lang == "c" and not (shutil.which("cc") and shutil.which("make")):
        pytest.skip("cc and make are needed")
    name = f"{lang}-wheel"
    fl._tools.command("new", "aggregator", name, "--lang", lang, "--wheel")
    pip = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--no-index", "-w", "dist"]
    done = subprocess.run(pip, cwd=name, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = Path(name, "dist").glob("*.whl")
    tag = "py3-none-any" if lang == "python" else "py3-none-"
    assert tag in wheel.name and ("any" in wheel.name) == (lang == "python")
    pip = [sys.executable, "-m", "pip", "install", str(wheel), "--no-deps", "--no-index", "--target", "site"]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.syspath_prepend("site")
    listed = json.loads(fl._tools.command("plugin", "list", "--json"))["plugins"]
    assert [one["version"] for one in listed if one["name"] == f"fl-{name}" and one["sha256"]] == ["0.1.0"]
    assert fl.run(spec(fedavg, f"fl-{name}", name), quiet=True).digest
