"""`fl.audit`: a mechanism in Python that claims noise and adds none is found."""

from pathlib import Path

import fl
import pytest

from conftest import QUICK

LYING = '''
import fl

@fl.privacy("lying")
class Lying:
    """Draws noise, and does not add it."""

    def clip(self, message):
        return message

    def price(self, message, cohort):
        return {"Laplace": {"sensitivity": 0.001, "scale": 1.0, "unit": "party"}}

    def perturb(self, message, cohort, noise):
        noise.laplace(next(iter(message.values())), 1.0)
        return message
'''


def test_a_mechanism_in_python_that_adds_no_noise_breaks_its_claim():
    Path("lying.py").write_text(LYING)
    text = (QUICK / "fedavg-private.yaml").read_text()
    text = text.replace("rounds: 10", "rounds: 1").replace("use: gaussian-update, clip: 0.5, noise-multiplier: 1.0", "use: lying")
    Path("spec.yaml").write_text(text + "plugins: [{ module: lying }]\n")
    found = fl.audit("spec.yaml", {"parts.accountant": {"use": "basic"}}, runs=30, quiet=True)
    verdicts = {finding["observer"]: finding["verdict"] for finding in found["findings"]}
    assert verdicts["server"] == verdicts["readers"] == "broken", found
    assert "claim broken" in Path("audits/quick-fedavg-private/audit.md").read_text()
    with pytest.raises(fl.SpecError, match="--runs"):
        fl.audit("spec.yaml", runs=2, quiet=True)
