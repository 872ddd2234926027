/* MDS: the first byte chooses. 0: the rest is index.json. Else the rest is a shard, and index.json is that of one of a few
 * encodings with as many samples as the byte says. */
#include "fuzz_tokens.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const encodings[] = {"ndarray", "ndarray:uint16", "ndarray:int32:2,3", "ndarray:int64"};
    static const char index[] =
        "{\"version\":2,\"shards\":[{\"column_encodings\":[\"str\",\"%s\"],\"column_names\":[\"id\",\"tokens\"],"
        "\"column_sizes\":[%s,%s],\"compression\":null,\"format\":\"mds\",\"raw_data\":{\"basename\":\"s\",\"bytes\":%"
        "zu}"
        ",\"samples\":%u,\"version\":2,\"zip_data\":null}]}";
    if (!size)
        return 0;
    if (data[0] == 0) {
        fuzz_put("index.json", data + 1, size - 1);
    } else {
        char text[512];
        unsigned e = data[0] >> 6;
        int n = snprintf(text, sizeof text, index, encodings[e], data[0] & 32 ? "4" : "null", e == 2 ? "24" : "null",
                         size - 1, data[0] & 31);
        fuzz_put("index.json", (const uint8_t *)text, (size_t)n);
    }
    fuzz_put("s", data + 1, size - 1);
    fuzz_tokens(&mr_token_mds, "index.json");
    return 0;
}
