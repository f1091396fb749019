"""The console: pages about a cluster, for a browser. It is a client: what it knows and does goes through `minilog.aio`,
with the credentials of the person at the browser. So the brokers' users, rules, quotas and audit hold here as anywhere.

    web            the application: routes, the way of a request, errors as pages
    settings       what a console may be started with
    sessions       logins of browsers: a core
    attempts       failed logins of an address: a core
    browser_rules  headers and hosts of requests and answers
    forms          what a browser may send
    cluster_view   the cluster as one viewer's rights show it
    snapshots      one look at the cluster for many viewers: how old it may be
    history        numbers over time: a core
    rendering      templates
    shown_bytes    bytes of records as text, JSON and hex: pure
    record_reader  some records, within limits
    pages/         what each page shows, made of what the client answers; the way there is in `web`
"""
