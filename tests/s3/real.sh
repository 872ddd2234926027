# Sourced by tests that need a real server: real_server NAME starts versitygw or minio in a folder of its own and sets the
# environment that finds it. A server that is not there is built from its Go module (versitygw about 3 minutes of CPU, minio 4)
# with MR_TEST_FULL=1 and Go; else real_server returns 1 and says why. stop_server (server.sh) ends it; kill_real_server ends it
# with what it was doing, serve_real starts it again on its port and folder. real_uploads: how many multipart uploads there are.
# shellcheck shell=bash
# shellcheck source=server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

find_server() { # NAME MODULE
    local at
    for at in "$(command -v "$1" || true)" "$HOME/go/bin/$1" "${MR_BINARY_DIR%/dev}/go/bin/$1"; do
        [ -x "$at" ] && { echo "$at"; return 0; }
    done
    [ "${MR_TEST_FULL:-}" = 1 ] && command -v go >/dev/null || return 1
    GOBIN=${MR_BINARY_DIR%/dev}/go/bin go install "$2" >&2 || return 1
    echo "${MR_BINARY_DIR%/dev}/go/bin/$1"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

real_server() { # NAME
    export AWS_ACCESS_KEY_ID=test-key-0001 AWS_SECRET_ACCESS_KEY=test/secret+0001
    s3_name=$1
    case $1 in
    versitygw) s3_program=$(find_server versitygw github.com/versity/versitygw/cmd/versitygw@latest) || return 1 ;;
    minio) s3_program=$(find_server minio github.com/minio/minio@latest) || return 1 ;;
    esac
    s3_port=$(free_port)
    s3_folder=$(mktemp -d)
    export AWS_ENDPOINT_URL=http://127.0.0.1:$s3_port
    serve_real
    for _ in $(seq 50); do # MinIO answers before it serves
        make_bucket bucket >/dev/null 2>&1 && return 0
        sleep 0.2
    done
    echo "FAILED: no bucket can be made in $1"
    exit 1
}

serve_real() {
    case $s3_name in
    versitygw)
        ROOT_ACCESS_KEY=$AWS_ACCESS_KEY_ID ROOT_SECRET_KEY=$AWS_SECRET_ACCESS_KEY \
            "$s3_program" --quiet --port "127.0.0.1:$s3_port" posix "$s3_folder" >"$s3_folder.log" 2>&1 & ;;
    minio)
        MINIO_ROOT_USER=$AWS_ACCESS_KEY_ID MINIO_ROOT_PASSWORD=$AWS_SECRET_ACCESS_KEY MINIO_BROWSER=off \
            "$s3_program" server --quiet --address "127.0.0.1:$s3_port" "$s3_folder" >"$s3_folder.log" 2>&1 & ;;
    esac
    s3_pid=$!
    for _ in $(seq 300); do
        python3 -c "import socket; socket.create_connection(('127.0.0.1', $s3_port), 1)" 2>/dev/null && return
        kill -0 $s3_pid 2>/dev/null || { echo "FAILED: $s3_name does not start: $(cat "$s3_folder.log")"; exit 1; }
        sleep 0.1
    done
}

kill_real_server() {
    kill -9 "$s3_pid"
    wait "$s3_pid" 2>/dev/null || true
    s3_pid=
}

real_uploads() { signed GET /bucket uploads= | grep -o '<Upload>' | wc -l; }

drop_real_server() {
    stop_server
    rm -rf "${s3_folder:?}" "$s3_folder.log"
}
