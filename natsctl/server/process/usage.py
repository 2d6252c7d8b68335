"""The help of `natsctl server run`."""

from typing import Final

USAGE: Final = """\
Usage: natsctl server run [options]

Server Options:
    -a, --addr, --net <host>         Bind to host address (default: 0.0.0.0)
    -p, --port <port>                Use port for clients (default: 4222; -1: any free port)
    -n, --name, --server_name <name> Server name (default: the server id)
    -m, --http_port <port>           Use port for http monitoring
    -ms, --https_port <port>         Use port for https monitoring
        --client_advertise <address> Where clients are told to connect
    -c, --config <file>              Configuration file; flags win over it
    -t                               Test the configuration and exit
    -P, --pid <file>                 File to store the process id
    -sl, --signal <signal>[=<pid>]   Send a signal to a server that runs: ldm, stop, quit, term, reopen, reload;
                                     <pid> is a number or the path of a pid file
        --ports_file_dir <dir>       Create nats-server_<pid>.ports with the listen addresses in this folder
    -h, --help                       Show this message
    -v, --version                    Show version

JetStream Options:
    -js, --jetstream                 Enable JetStream
    -sd, --store_dir <dir>           Set the storage folder of JetStream (the store lives in <dir>/jetstream)
        --js_domain <domain>         Serve the API under $JS.<domain>.API too
        --sync <policy>              When messages are synced to disk: always (before every ack; default),
                                     a duration such as 1s, or never
        --archive_version <1|2>      Format of stream snapshots: 2, as nats-server 2.15 writes them (default),
                                     or 1, which every nats-server restores; both are understood always
        --apply <path>               Carry out these documents (files, folders; again for more) before anybody can
                                     connect; `natsctl apply` does the same to a server that runs
        --apply_account <account>    The account that they are for, where more than one has JetStream
        --apply_prune                Remove what their owner made and they name no more

Logging Options:
    -l, --log <file>                 File to redirect log output
    -T, --logtime                    Timestamp log entries (default: true)
        --logtime_utc                Timestamps in UTC instead of the local time zone
        --log_size_limit <bytes>     Size after which a log file is put aside
        --max_traced_msg_len <len>   Bytes of a message that a trace shows
    -D, --debug                      Enable debugging output
    -V, --trace                      Trace what connections send and receive
    -DV, -VV, -DVV                   Debug and trace, trace, debug and trace

Authorization Options:
        --user <user>                User required for connections
        --pass <password>            Password required for connections
        --auth <token>               Authorization token required for connections

TLS Options:
        --tls                        Enable TLS, do not verify clients
        --tlscert <file>             Server certificate file
        --tlskey <file>              Private key for the server certificate
        --tlsverify                  Enable TLS, verify client certificates
        --tlscacert <file>           Client certificate CA for verification

Flags have one or two dashes; values follow a blank or `=`. Clusters are the reference nats-server's job: natsctl's
commands work with it.
"""
