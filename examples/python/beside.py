import sys

import nigh

with nigh.Client(sys.argv[1]) as client:                 # "unix:/run/nigh.sock"
    client.mset({"user:1": "Ada", "last:Ada": "tea"})    # by a ring in shared memory
    print(client.get("user:1").decode(), client.mget("user:1", "user:2"))  # from memory

    def last_order(view):                                # of one moment
        return view.get(b"last:" + view.get("user:1"))

    print("Ada's last order:", client.view(last_order).decode())
