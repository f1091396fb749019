"""Render deploy/helm/minilog for each file of deploy/helm/values, and decode the manifests into Kubernetes' own types.

    .venv/bin/python -m tools.check_chart --helm HELM     needs `helm` and `go`; Go fetches Kubernetes' types once
    go install helm.sh/helm/v3/cmd/helm@v3.19.0           installs helm

A field that Kubernetes does not have, or that has another type, fails. The further checks of an API server (names that
must exist, ranges, immutable fields) are left out, for there is no API server here.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHART, VALUES = ROOT / "deploy/helm/minilog", ROOT / "deploy/helm/values"
KUBERNETES = "1.34.0"  # helm, built by `go install`, names one too old for any chart


def rendered(helm: str, values: pathlib.Path) -> str:
    """The manifests. Raises CalledProcessError."""
    common = ("-f", str(values), "--kube-version", KUBERNETES)
    subprocess.run([helm, "lint", "--quiet", "--strict", str(CHART), *common], check=True)
    command = [helm, "template", "minilog", str(CHART), "--namespace", "data", *common]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """0 where all manifests decode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--helm", default="helm", help="the program")
    helm = parser.parse_args().helm
    failed = 0
    for values in sorted(VALUES.glob("*.yaml")):
        print(f"-- {values.name}", flush=True)
        strict = ["go", "run", "."]
        done = subprocess.run(
            strict, cwd=ROOT / "tools/strict_manifests", input=rendered(helm, values), text=True, check=False
        )
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
