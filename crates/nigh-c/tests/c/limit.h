/* A process that may take little memory (RLIMIT_AS, as `ulimit -v` sets it). */

#ifndef LIMIT_H
#define LIMIT_H

#include "check.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Lets this process take so many bytes more than it has; 0: any number again. */
static void limit(size_t more_bytes) {
    struct rlimit limits;
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL && fscanf(statm, "%lu", &pages) == 1);
    CHECK(fclose(statm) == 0 && getrlimit(RLIMIT_AS, &limits) == 0);
    limits.rlim_cur = limits.rlim_max;
    if (more_bytes > 0) limits.rlim_cur = pages * (rlim_t)getpagesize() + more_bytes;
    CHECK(setrlimit(RLIMIT_AS, &limits) == 0);
}

#endif
