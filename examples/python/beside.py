import sys

import nigh

address = sys.argv[1] if len(sys.argv) > 1 else "unix:/run/nigh.sock"
with nigh.Client(address) as client:
    client.mset({"user:1": "Ada", "last:Ada": "tea"})    # by a ring in shared memory
    print(client.get("user:1").decode(), client.mget("user:1", "user:2"))  # from memory

    def last_order(view):                                # of one moment
        return view.get(b"last:" + view.get("user:1"))

    print("Ada's last order:", client.view(last_order).decode())
