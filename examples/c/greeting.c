#include <nigh.h>
#include <stdio.h>

int main(void) {
    nigh_db db;
    char *value;
    size_t len;
    if (nigh_open("data", NULL, &db) != NIGH_OK) return puts(nigh_error_message()), 1;
    nigh_put(db, "greeting", 8, "hello", 5, NULL);     /* survives this process */
    nigh_put(db, "order", 5, "paid", 4, &nigh_strong); /* on disk when it returns */
    if (nigh_get(db, "greeting", 8, &value, &len) == NIGH_OK) puts(value);
    nigh_free(value);
    return nigh_close(db);
}
