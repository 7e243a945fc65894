"""What compiled code needs: Numba, its cache, vector instructions, threads.

`jit`               Numba's compiler with pareo's options
`cache`             machine code on disk
`generated_module`  modules from generated source
`llvm_vectors`      LLVM's vector instructions
`vector_math`       exp, the logistic function and tanh
`gemm`              BLAS's product, called from compiled code
`thread_pool`       worker threads, and how work is split over them
`thread_handoff`    how a thread gets work within microseconds
`subnormals`        results that are subnormal numbers, which are 0
`spin_barrier`      a barrier for threads that meet very often
"""
