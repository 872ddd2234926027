/* The hdf5 reader on arbitrary files. */
#include "fuzz_array.h"
#include "format/hdf5_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_h5_verify_checksums = false; /* a fuzzer cannot guess them */
    fuzz_put("f.h5", data, size);
    fuzz_rows_and_unpack(&mr_format_hdf5, "f.h5", data, size);
    fuzz_scan_and_read("hdf5", "f.h5");
    return 0;
}
