"""Browses for queues with python-zeroconf and prints what it finds as one line of JSON.

Usage: browse.py COUNT SECONDS: ends once COUNT instances are resolved, or when the time is over.
"""

import json
import sys
import time

from zeroconf import IPVersion, ServiceBrowser, ServiceListener, Zeroconf

TYPE = "_serval_queue._tcp.local."


class Found(ServiceListener):
    def __init__(self):
        self.names = set()

    def add_service(self, zc, type_, name):
        self.names.add(name)

    def update_service(self, zc, type_, name):
        self.names.add(name)

    def remove_service(self, zc, type_, name):
        self.names.discard(name)


def main():
    count, seconds = int(sys.argv[1]), float(sys.argv[2])
    zc = Zeroconf(ip_version=IPVersion.V4Only)
    found, services = Found(), {}
    ServiceBrowser(zc, TYPE, found)
    until = time.monotonic() + seconds
    while len(services) < count and time.monotonic() < until:
        for name in sorted(found.names - services.keys()):
            info = zc.get_service_info(TYPE, name, 1000)
            if info is not None:
                txt = {key.decode(): value.decode() for key, value in info.properties.items() if value is not None}
                services[name] = {
                    "port": info.port,
                    "txt": txt,
                    "addresses": info.parsed_addresses(),
                }
        time.sleep(0.05)
    zc.close()
    print(json.dumps(services))


main()
