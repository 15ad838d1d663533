"""Constants with which tests and the processes that they start fit and search in less time."""

QUICK_CONSTANTS = {
    "nas_rlm.plotting.density.GRID_SIZE": 48,
    "nas_rlm.plotting.style.DPI": 75,
    "nas_rlm.search.acquisition.selection.POOL_SIZE": 100,
    "nas_rlm.search.acquisition.candidate_pool.FIRST_POOL_SIZE": 100,
    "nas_rlm.search_run.SAMPLES_PER_ARCHITECTURE": 64,
    "nas_rlm.surrogates.graphs.features.NUM_NETWORKS": 100,  # that features are standardised on
    "nas_rlm.surrogates.gaussian_process.ADAM_STEPS": 25,
}
WITHOUT_QUICK_CONSTANTS = "NAS_RLM_TESTS_WITHOUT_QUICK_CONSTANTS"  # a variable of the environment
