"""The Python files of vLLM's published wheels, fetched once with pip into the user's cache folder."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from dspark_cli.sources.user_folders import user_folder

RELEASES = ("0.26.0", "0.27.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64")
"""The wheels' Python files are the same for all; one has to be named, for pip runs on other machines too."""


def published_sources(release: str) -> Path:
    """The folder that holds vllm/ of that release; fetched where the cache has none, which takes 400 MB for a moment.

    A folder of that name is complete: it is filled under another one and then renamed.

    Raises:
        RuntimeError: pip could not get it.
    """
    sources = user_folder("XDG_CACHE_HOME", ".cache") / "vllm-sources" / release
    if not sources.exists():
        sources.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=sources.parent) as unfinished:
            _extract(_download(release, Path(unfinished)), Path(unfinished) / "sources")
            _put(Path(unfinished) / "sources", sources)
    return sources


def _download(release: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    command += ["--no-deps", "--only-binary", ":all:", "--python-version", "3.12", "--dest", str(folder)]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    done = subprocess.run([*command, f"vllm=={release}"], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise RuntimeError(f"pip could not download vllm {release}: {done.stderr.strip()}")
    return wheels[0]


def _extract(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith((".py", ".dist-info/METADATA"))]
        archive.extractall(folder, names)


def _put(finished: Path, place: Path) -> None:
    try:
        finished.rename(place)
    except OSError:
        if not place.exists():  # another run was faster
            raise
