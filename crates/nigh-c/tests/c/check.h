/* What holds is checked by these, which end the program else. */

#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                                           \
    ((holds) ? (void)0                                                                         \
             : (printf("%s:%d: not %s: %s\n", __FILE__, __LINE__, #holds, nigh_error_message()), \
                exit(1)))
#define OK(call) CHECK((call) == NIGH_OK)
#define SAYS(text) CHECK(strstr(nigh_error_message(), text) != NULL)

#endif
