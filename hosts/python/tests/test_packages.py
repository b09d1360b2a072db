"""Packages that announce a plugin, as pip installs them."""

import shutil
import subprocess
import sys
from pathlib import Path

import fl
import pytest

EXAMPLE = Path(__file__).parents[3] / "plugins" / "example-python"


def installed(site: Path, name: str, source: str, version: str = "0.1.0"):
    """What pip leaves in `site-packages` of a wheel with one module."""
    module = name.removeprefix("fl-").replace("-", "_")
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[fl.plugins]\nplugin = {module}\n")
    (site / f"{module}.py").write_text(source)


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
    with pytest.raises(fl.SpecError, match="it is not installed in .*`fl plugin add fl-other`, or `pip install` it"):
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


def test_less_trust_than_the_user_asks_for_is_refused(fedavg, tmp_path, monkeypatch):
    run = 'open("it-ran", "w").close()\n'
    installed(tmp_path / "site", "fl-trusted-mean", run)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("FL_PLUGINS_TRUST", "published")
    with pytest.raises(fl.SpecError, match="plugins-trust is `published`, and this plugin is `any`"):
        fl.check(spec(fedavg, "fl-trusted-mean", "mean"))
    with pytest.raises(fl.SpecError, match="plugins-trust is `published`"):
        fl.check(fedavg | {"plugins": [{"module": "trusted_mean", "path": str(tmp_path / "site")}]})
    assert not Path("it-ran").exists()

    @fl.aggregator("own-mean")
    class OwnMean:
        """A mean."""

        def aggregate(self, round, inbox):
            return inbox[0]

    with pytest.raises(fl.SpecError, match="plugins-trust is `published`, and aggregator `own-mean`"):
        fl.check({**fedavg, "parts": {**fedavg["parts"], "aggregator": {"use": "own-mean"}}})


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
    monkeypatch.setenv("FL_PLUGIN_DIR", str(tmp_path / "plugins"))
    assert f"fl-{name} 0.1.0 is installed" in fl._tools.command("plugin", "add", str(wheel))
    assert fl.run(spec(fedavg, f"fl-{name}", name), quiet=True).digest
