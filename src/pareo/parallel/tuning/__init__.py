"""Search for good hyper-parameters: Optuna proposes and remembers, pareo trains."""
