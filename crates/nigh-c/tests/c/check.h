/* What holds is checked by these, which end the program else; and bytes of texts. */

#ifndef CHECK_H
#define CHECK_H

#include <nigh.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                                           \
    ((holds) ? (void)0                                                                         \
             : (printf("%s:%d: not %s: %s\n", __FILE__, __LINE__, #holds, nigh_error_message()), \
                exit(1)))
#define OK(call) CHECK((call) == NIGH_OK)
#define SAYS(text) CHECK(strstr(nigh_error_message(), text) != NULL)

static nigh_bytes bytes(const char *text) {
    nigh_bytes bytes;
    bytes.data = text;
    bytes.len = strlen(text);
    return bytes;
}

static int is(nigh_bytes value, const char *text) {
    return value.data != NULL && value.len == strlen(text) && strcmp(value.data, text) == 0;
}

#endif
