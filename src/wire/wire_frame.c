/* Messages to bytes and back; see wire_frame.h. Bytes that are not used are zero when written and not looked at when
 * read, so that a later version can use them. */
#include "wire/wire_frame.h"
#include "base/common.h"

#include <string.h>

static const uint8_t magic[4] = {'M', 'R', 'W', 'I'};

uint8_t mr_wire_frame_kind(const uint8_t *bytes, size_t len)
{
    if (len < 8 || memcmp(bytes, magic, 4) != 0 || bytes[4] == 0 || bytes[4] >= MR_WIRE_KINDS)
        return 0;
    return bytes[4];
}

static bool is_hello(uint8_t kind)
{
    return kind == MR_WIRE_HELLO || kind == MR_WIRE_WELCOME || kind == MR_WIRE_REFUSE;
}

void mr_wire_hello_encode(const struct mr_wire_hello *h, uint8_t out[MR_WIRE_HELLO_BYTES])
{
    memcpy(out, magic, 4);
    out[4] = h->kind;
    out[5] = 0;
    mr_store_le16(out + 6, h->version);
    mr_store_le32(out + 8, h->rank);
    mr_store_le32(out + 12, h->world);
    mr_store_le64(out + 16, h->token);
    mr_store_le32(out + 24, h->window);
    mr_store_le32(out + 28, 0);
    memcpy(out + 32, h->data_set, 16);
    memcpy(out + 48, h->secret, 32);
}

bool mr_wire_hello_decode(const uint8_t *bytes, size_t len, struct mr_wire_hello *out)
{
    uint8_t kind = mr_wire_frame_kind(bytes, len);
    if (!is_hello(kind) || len < MR_WIRE_HELLO_BYTES) /* a later version may be longer */
        return false;
    *out = (struct mr_wire_hello){
        .kind = kind,
        .version = mr_load_le16(bytes + 6),
        .rank = mr_load_le32(bytes + 8),
        .world = mr_load_le32(bytes + 12),
        .token = mr_load_le64(bytes + 16),
        .window = mr_load_le32(bytes + 24),
    };
    memcpy(out->data_set, bytes + 32, 16);
    memcpy(out->secret, bytes + 48, 32);
    return true;
}

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
    uint8_t kind = mr_wire_frame_kind(bytes, len);
    if (kind < MR_WIRE_REQUEST || len != MR_WIRE_MESSAGE_BYTES)
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
