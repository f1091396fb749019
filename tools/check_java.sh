#!/bin/sh
# Spark runs on Java 17 or 21: find it before anything else is started, or say what to install.
set -u
java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
advice="install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to where it is"
if ! command -v "$java" >/dev/null 2>&1; then
    echo "Java 17 or 21 is needed to run Spark, and $java is not there: $advice" >&2
    exit 1
fi
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
case "$version" in
    17 | 21) ;;
    *)
        echo "Java 17 or 21 is needed to run Spark, and $java is version ${version:-unknown}: $advice" >&2
        exit 1
        ;;
esac
