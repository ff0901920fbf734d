#include <nigh_client.h>
#include <stdio.h>

int main(int count, char **words) {
    nigh_client client;
    char *value = NULL;
    size_t len;
    int is_well;
    const char *address = count > 1 ? words[1] : "unix:/run/nigh.sock"; /* or "host:6379" */
    if (nigh_client_connect(address, NULL, &client) != NIGH_OK)
        return puts(nigh_error_message()), 1;
    is_well = nigh_client_set(client, "greeting", 8, "hello", 5, NULL) == NIGH_OK /* by a ring */
        && nigh_client_get(client, "greeting", 8, &value, &len) == NIGH_OK; /* no request */
    puts(is_well ? value : nigh_error_message());
    nigh_free(value);
    return nigh_client_close(client) != NIGH_OK || !is_well;
}
