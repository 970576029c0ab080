// Which build of the kernels this machine can run: setup.py names their instructions.
#include "kernels.h"

int maskreg_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2")) return 0;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return 1;
    if (!__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq")) return 1;
    if (!__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vbmi")) return 1;
    if (!__builtin_cpu_supports("avx512vnni")) return 1;
    if (!__builtin_cpu_supports("avx512vbmi2") || !__builtin_cpu_supports("avx512vpopcntdq")) return 1;
    return 2;
#else
    return 0;
#endif
}
