#include <nigh.h>
#include <stdio.h>

int main(void) {
    nigh_db db;
    char *value = NULL;
    size_t len;
    int is_well;
    if (nigh_open("data", NULL, &db) != NIGH_OK) return puts(nigh_error_message()), 1;
    is_well = nigh_put(db, "greeting", 8, "hello", 5, NULL) == NIGH_OK  /* survives this process */
        && nigh_put(db, "order", 5, "paid", 4, &nigh_strong) == NIGH_OK /* on disk at its return */
        && nigh_get(db, "greeting", 8, &value, &len) == NIGH_OK;
    puts(is_well ? value : nigh_error_message());
    nigh_free(value);
    return nigh_close(db) != NIGH_OK || !is_well;
}
