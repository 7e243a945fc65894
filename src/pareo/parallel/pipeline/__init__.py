"""Model parallelism by layers: stages through which micro-batches flow."""
