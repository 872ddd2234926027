/* What torchrun tells its processes. Beside src/comm/comm_detect.c the only code of the libraries that reads the
 * environment, for the same reason: a launcher has no other way to speak to a process. */
#include "base/common.h"
#include "wire/wire.h"

#include <stdlib.h>

static bool number_of(const char *variable, uint32_t most, uint32_t *out)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    unsigned long v = strtoul(text, &end, 10);
    if (*end != '\0' || v > most)
        return false;
    *out = (uint32_t)v;
    return true;
}

bool mr_wire_tcp_from_torchrun(struct mr_wire_tcp_params *p)
{
    uint32_t port, rank, world;
    const char *host = getenv("MASTER_ADDR");
    if (!host || !*host || !number_of("MASTER_PORT", 65535, &port) || !number_of("RANK", UINT32_MAX, &rank) ||
        !number_of("WORLD_SIZE", UINT32_MAX, &world) || rank >= world)
        return false;
    *p = (struct mr_wire_tcp_params){.host = host, .port = (uint16_t)port, .rank = rank, .world = world};
    return true;
}
