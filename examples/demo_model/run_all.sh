#!/bin/sh
# Trains on for MINUTES (default 40), anneals for 12 more, and writes the model to OUT with its evaluation beside it.
#   ./run_all.sh [MINUTES] [OUT]
minutes=${1:-40}
out=${2:-$HOME/.cache/ninfer-demo/export}
cd "$(dirname "$0")" || exit 1
./train.sh --minutes "$minutes" && ./train.sh --minutes 12 --anneal && python export.py --out "$out" || exit 1
export OMP_NUM_THREADS=1
nice -n 19 python evaluate.py --model "$out" --count 40 --json "$out/evaluation.json" > "$out/evaluation.txt" 2>&1
nice -n 19 python evaluate.py --model "$out" --count 40 --reset --only recall recall_two reverse last_told summary \
    --json "$out/evaluation-reset.json" > "$out/evaluation-reset.txt" 2>&1
