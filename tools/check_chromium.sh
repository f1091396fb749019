#!/bin/sh
# The tests of the console's pages need Chromium and its driver. Installs them where that can be done (Debian, as root).
set -u
there() { command -v chromium >/dev/null && command -v chromedriver >/dev/null; }
there && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get -qq update >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium chromium-driver >/dev/null 2>&1
    there && exit 0
fi
echo "chromium and chromedriver are needed and not here: install them (Debian: apt-get install chromium chromium-driver)" >&2
exit 1
