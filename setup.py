"""The folder `kernels/` is installed under the name `fused_pe`; pyproject.toml says everything else."""

from setuptools import find_packages, setup

setup(
    package_dir={"fused_pe": "kernels"},
    packages=["fused_pe", *(f"fused_pe.{name}" for name in find_packages("kernels"))],
)
