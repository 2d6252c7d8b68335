"""Javas and Sparks that are none: programs and folders that look like them."""

from pathlib import Path


def java(home: Path, version: str = "17.0.9", *, modules: str = "java.base", release: bool = True) -> Path:
    """A home whose program says its version, and tells the words that it is given otherwise; returns the program."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f"""  *-version*) echo 'openjdk version "{version}" 2025-01-01' >&2; echo "    java.home = {home}" >&2 ;;\n"""
        f"  *--list-modules*) printf '%s@{version}\\n' {modules} ;;\n"
        """  *) printf '%s\\n' "$@" ;;\n"""
        "esac\n"
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return program


def spark(folder: Path, version: str = "4.3.0") -> Path:
    """A folder with what natsctl looks at in Spark's."""
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").write_bytes(b"core")
    (folder / "jars" / "other.jar").write_bytes(b"other")
    (folder / "bin").mkdir()
    libraries = folder / "python" / "lib"
    libraries.mkdir(parents=True)
    (libraries / "pyspark.zip").write_bytes(b"zip")
    (libraries / "py4j-0.10.9.9-src.zip").write_bytes(b"zip")
    return folder
