"""Where the tests' material is."""

from pathlib import Path

TESTS = Path(__file__).parent
FIXTURES = TESTS / "fixtures"
MODELS = TESTS / "models"
TARGET, DFLASH, DSPARK = (MODELS / name for name in ("target", "dflash", "dspark"))
