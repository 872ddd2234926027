/* Messages to bytes and back; see wire_frame.h. Bytes that are not used are zero when written and not looked at when
 * read, so that a later version can use them. */
#include "wire/wire_frame.h"
#include "base/common.h"

#include <string.h>

static const uint8_t magic[4] = {'M', 'R', 'W', 'I'};

void mr_wire_message_encode(const struct mr_wire_message *m, uint8_t out[MR_WIRE_MESSAGE_BYTES])
{
    bool reply = m->kind == MR_WIRE_REPLY;
    memset(out, 0, MR_WIRE_MESSAGE_BYTES);
    memcpy(out, magic, 4);
    out[4] = m->kind;
    out[5] = m->status;
    mr_store_le32(out + 8, m->rank);
    mr_store_le32(out + 12, m->slot);
    mr_store_le64(out + 16, m->token);
    mr_store_le64(out + 24, reply ? m->len : m->id);
    mr_store_le64(out + 32, reply ? m->hash : m->time_us);
    mr_store_le32(out + 40, m->seq);
}

bool mr_wire_message_decode(const uint8_t *bytes, size_t len, struct mr_wire_message *out)
{
    uint8_t kind = len == MR_WIRE_MESSAGE_BYTES ? bytes[4] : 0;
    if (kind < MR_WIRE_REQUEST || kind >= MR_WIRE_KINDS || memcmp(bytes, magic, sizeof magic) != 0)
        return false;
    if (kind == MR_WIRE_REPLY && bytes[5] >= MR_WIRE_FRAME_STATUSES)
        return false;
    *out = (struct mr_wire_message){
        .kind = kind,
        .status = bytes[5],
        .rank = mr_load_le32(bytes + 8),
        .slot = mr_load_le32(bytes + 12),
        .token = mr_load_le64(bytes + 16),
        .seq = mr_load_le32(bytes + 40),
    };
    uint64_t a = mr_load_le64(bytes + 24), b = mr_load_le64(bytes + 32);
    if (kind == MR_WIRE_REPLY) {
        out->len = a;
        out->hash = b;
    } else {
        out->id = a;
        out->time_us = b;
    }
    return true;
}
