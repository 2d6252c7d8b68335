#!/usr/bin/env bash
# Installs what the input says: a folder, a wheel, a URL, or the repository that this action lies in.
set -euo pipefail

what=$INSTALL
if [ "$what" = source ]; then
  what=$(cd "$GITHUB_ACTION_PATH/../../.." && pwd)
  if ! grep -qs '^name = "natsctl"' "$what/pyproject.toml"; then
    echo "the action was copied out of its repository: give the input install a wheel, a folder or a URL of natsctl" >&2
    exit 2
  fi
fi
case $what in
  ./* | /* | *.whl | https://*) ;;
  *)
    echo "install: $what is a name of an index, which anybody may have registered: give a path, a wheel or a URL" >&2
    exit 2
    ;;
esac
python -m pip install --quiet --disable-pip-version-check "$what"
