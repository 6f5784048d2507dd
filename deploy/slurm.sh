#!/usr/bin/env bash
# A Ray cluster for the length of one Slurm job, with a midmask job on it:
#
#   sbatch --nodes 2 --gpus-per-node 8 deploy/slurm.sh jobs/run_recipe.py --recipe retromae --corpus beir:/data/squad
#
# From the project's folder, which all nodes share, with .venv in it (`make venv`). MIDMASK_STORAGE must be shared too.
# Killed at its time limit, it goes on where it was when it is submitted again.
#SBATCH --job-name=midmask
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --signal=TERM@120
set -euo pipefail

[ $# -gt 0 ] || { echo "error: no job. Type: sbatch deploy/slurm.sh jobs/NAME.py FLAGS" >&2; exit 2; }
cd "${SLURM_SUBMIT_DIR:?run this with sbatch}"
# shellcheck source=/dev/null
source .venv/bin/activate

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 20000)) # two jobs may share a node's name
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')

exec srun --ntasks-per-node=1 --kill-on-bad-exit=1 \
  ray symmetric-run --address "$head:$port" --min-nodes "$SLURM_JOB_NUM_NODES" --disable-usage-stats -- \
  python "$@"
