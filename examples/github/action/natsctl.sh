#!/usr/bin/env bash
# What the action does. All inputs are in the environment; see action.yml for what they mean.
set -euo pipefail

: "${NATS_URL:?the input server is empty: is the secret there? Pull requests of forks have none}"
if [ -n "${CREDENTIALS:-}" ]; then
  export NATS_CREDS=env://CREDENTIALS
fi
export NO_COLOR=1 COLUMNS=120 NATSCTL_NO_INPUT=1

folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/natsctl.XXXXXX")
report=$folder/report.txt
plan=$folder/plan.json

# Adds the flag $1 with each line of $2 that is not blank.
words=()
each_line() {
  local line
  while IFS= read -r line; do
    [ -z "${line//[[:space:]]/}" ] || words+=("$1" "$line")
  done <<< "$2"
}

# Runs natsctl, shows what it says in the log and keeps the code; the runner takes no commands from that output.
code=0
run() {
  local stop
  stop=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  echo "::stop-commands::$stop"
  code=0
  natsctl "$@" > "$report" || code=$?
  cat "$report"
  echo "::$stop::"
}

# Adds the report to the job's summary, indented, so that it is text and never markup.
summarise() {
  {
    echo "### natsctl $1"
    echo
    sed 's/^/    /' "$report"
    echo
  } >> "$GITHUB_STEP_SUMMARY"
}

output() {
  echo "$1=$2" >> "$GITHUB_OUTPUT"
}

finish() {
  output exit-code "$code"
  exit "$1"
}

make_plan() {
  run plan "${words[@]}" --out "$plan"
  summarise plan
  case $code in
    0) output changes false ;;
    10) output changes true ;;
    *) finish "$code" ;;
  esac
  output plan "$plan"
  (cd "$folder" && sha256sum plan.json > plan.json.sha256)
  output plan-hash "$(cut -d ' ' -f 1 < "$plan.sha256")"
}

# Takes the plan that was reviewed, if it is the one with the hash that was reviewed.
check_reviewed() {
  [ -f "$REVIEWED" ] || { echo "the reviewed plan $REVIEWED is not there: is its artifact?" >&2; finish 2; }
  local found
  found=$(sha256sum < "$REVIEWED" | cut -d ' ' -f 1)
  if [ "$found" != "${PLAN_HASH:-}" ]; then
    echo "$REVIEWED is not the plan that was reviewed: its hash is $found, not ${PLAN_HASH:-given}" >&2
    finish 2
  fi
  plan=$REVIEWED
  output changes true
  output plan "$plan"
}

each_line --file "${DOCUMENTS:-}"
each_line --var "${VARIABLES:-}"
[ -z "${OWNER:-}" ] || words+=(--owner "$OWNER")
[ "${PRUNE:-}" != true ] || words+=(--prune)
[ -z "${MAX_REMOVALS:-}" ] || words+=(--max-removals "$MAX_REMOVALS")

case $MODE in
  plan)
    [ "${ALLOW_REPLACE:-}" != true ] || words+=(--allow-replace)
    [ "${ADOPT:-}" != true ] || words+=(--adopt)
    make_plan
    [ "${FAIL_ON_CHANGES:-}" != true ] || finish "$code"
    [ "$code" = 10 ] || finish 0
    # What an apply would refuse is to be known before the merge.
    refused=0
    natsctl apply --plan "$plan" --dry-run > /dev/null || refused=$?
    [ "$refused" = 10 ] || finish "$refused"
    finish 0
    ;;
  apply)
    [ "${ALLOW_REPLACE:-}" != true ] || words+=(--allow-replace)
    [ "${ADOPT:-}" != true ] || words+=(--adopt)
    if [ -n "${REVIEWED:-}" ]; then
      check_reviewed
    else
      make_plan
      [ "$code" = 10 ] || finish "$code"
    fi
    # What is no longer as it was when the plan was made is refused, and nothing is changed then.
    run apply --plan "$plan" --yes
    summarise apply
    finish "$code"
    ;;
  destroy)
    run destroy "${words[@]}" --yes
    summarise destroy
    finish "$code"
    ;;
  publish)
    # By stdin: a message that begins with @ or - is a message.
    run publish --no-templates --force-stdin -- "$SUBJECT" < <(printf '%s' "$MESSAGE")
    finish "$code"
    ;;
  *)
    echo "mode $MODE: expected plan, apply, destroy or publish" >&2
    exit 2
    ;;
esac
