"""The registry as a service: an HTTP API and web pages over the use cases.

::

    start        options of ``maskreg serve``: what is opened, bound and served
    app          the application: its routers, and what wraps them (access, middleware, observing, problems)
    auth         accounts: projects, roles, tokens, sessions, OpenID
    api, pages   the routes, one file per resource; each is found by being there
    gateway      objects in and out: who reads which key, what is accepted, quotas, verification
    background   threads beside the requests; ``jobs`` is long work, on processes of its own
"""
