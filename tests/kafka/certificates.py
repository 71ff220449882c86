"""Certificates for the listeners of the tests' Kafka, made by openssl: one authority, and what it signed.

ca.pem                          the authority; other-ca.pem: another, which signed none of these
server.pem, server.key          for localhost and 127.0.0.1; *-chain.pem: key and certificate in one file, for Kafka
expired.*, other-host.*         likewise, but expired yesterday, and for the host kafka.invalid
client.pem, client.key          for mTLS: CN=leat; client-locked.key: the same key under the password PASSWORD
stranger.pem, stranger.key      a client that the other authority signed
"""

import os
import shutil
import subprocess

from install import HOME, Missing

FOLDER = os.path.join(HOME, "certificates")
PASSWORD = "key-secret"
DAYS = 3650
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(folder, *arguments):
    result = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Missing(f"openssl {arguments[0]}: {result.stderr.strip()[-300:]}")


def make_authority(folder, name):
    openssl(folder, "req", "-x509", *NEW_KEY, "-days", str(DAYS), "-subj", f"/CN=leat tests {name}", "-keyout",
            f"{name}.key", "-out", f"{name}.pem")


def make_signed(folder, name, subject, hosts="", days=DAYS, authority="ca", attribute="CN"):
    alternatives = ["-addext", f"subjectAltName={hosts}"] if hosts else []
    openssl(folder, "req", *NEW_KEY, "-subj", f"/{attribute}={subject}", *alternatives, "-keyout", f"{name}.key", "-out",
            f"{name}.csr")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", str(days), "-copy_extensions", "copy", "-out", f"{name}.pem")
    with open(os.path.join(folder, f"{name}-chain.pem"), "w", encoding="utf-8") as chain:
        for part in (f"{name}.key", f"{name}.pem"):
            with open(os.path.join(folder, part), encoding="utf-8") as file:
                chain.write(file.read())


def make():
    """Makes them once. Returns the folder."""
    if os.path.isdir(FOLDER):
        return FOLDER
    if shutil.which("openssl") is None:
        raise Missing("openssl is not installed (./dev setup)")
    folder = FOLDER + ".part"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, mode=0o700)
    make_authority(folder, "ca")
    make_authority(folder, "other-ca")
    make_signed(folder, "server", "localhost", "DNS:localhost,IP:127.0.0.1")
    make_signed(folder, "expired", "localhost", "DNS:localhost,IP:127.0.0.1", days=-1)
    make_signed(folder, "other-host", "kafka.invalid", "DNS:kafka.invalid")
    make_signed(folder, "client", "leat")
    make_signed(folder, "stranger", "leat", authority="other-ca")
    openssl(folder, "pkcs8", "-topk8", "-in", "client.key", "-out", "client-locked.key", "-passout", f"pass:{PASSWORD}")
    os.rename(folder, FOLDER)
    return FOLDER
