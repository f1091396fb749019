"""The console: pages about a cluster, for a browser. It is a client of the cluster: all its calls go through
`minilog.aio`, with the viewer's credentials. So the brokers' users, rules, quotas and audit log hold for it too.

    web            the application: routes, the way of a request, errors as pages
    settings       the settings of a console, and their check
    sessions       logins of browsers: a core
    attempts       failed logins of an address: a core
    browser_rules  headers and hosts of requests and answers
    forms          what a browser may send
    cluster_view   the cluster within one viewer's rights
    snapshots      one look at the cluster for many viewers, and its age
    history        numbers over time: a core
    rendering      templates
    shown_bytes    bytes of records as text, JSON and hex: a core
    record_reader  some records of a topic, within limits
    pages/         the values of each page, made of the client's answers
"""
