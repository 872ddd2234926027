/* Offsets of the manifest's fields, shared by its reader and its writer; the table is doc/reference/manifest.md. */
#ifndef MR_DATASET_MANIFEST_BYTES_H
#define MR_DATASET_MANIFEST_BYTES_H

#define MRM_MAGIC "\x89MRM\r\n\x1a\n"
#define MRM_ENDIAN 0x01020304u
#define MRM_HEADER_BYTES 256u
#define MRM_ENTRY_BYTES 64u
#define MRM_ALIGN 64u
#define MRM_MAX_SECTIONS 64u
#define MRM_FORMAT_BYTES 16u /* of each of the two parts of the format name */
#define MRM_NAMES_PER_BLOCK 16u

enum mrm_header {
    MRM_H_VERSION = 8,
    MRM_H_ENDIAN = 12,
    MRM_H_LENGTH = 16,
    MRM_H_SAMPLES = 24,
    MRM_H_FILES = 32,
    MRM_H_FILE_BYTES = 40,
    MRM_H_SAMPLE_BYTES = 48,
    MRM_H_MIN = 56,
    MRM_H_MAX = 64,
    MRM_H_SEED = 72,
    MRM_H_CONTENT = 80,
    MRM_H_RNG = 84,
    MRM_H_COMPRESS = 88,
    MRM_H_DTYPE = 92,
    MRM_H_NDIM = 96,
    MRM_H_FLAGS = 100,
    MRM_H_DIMS = 104,
    MRM_H_FORMAT = 168,
    MRM_H_SECTIONS = 184,
    MRM_H_PER_FILE = 192,
    MRM_H_FORMAT_MORE = 200,
    MRM_H_CHECK = 248,
};

enum mrm_entry {
    MRM_E_ID = 0,
    MRM_E_ENC = 4,
    MRM_E_WIDTH = 5,
    MRM_E_COUNT = 8,
    MRM_E_BASE = 16,
    MRM_E_STEP = 24,
    MRM_E_OFFSET = 32,
    MRM_E_BYTES = 40,
    MRM_E_CHECK = 48
};

enum mrm_section {
    MRM_SPEC = 1,
    MRM_SAMPLE_OFFSET,
    MRM_SAMPLE_LENGTH,
    MRM_SAMPLE_AUX,
    MRM_SAMPLE_LABEL,
    MRM_FILE_FIRST,
    MRM_FILE_BYTES,
    MRM_FILE_LAYOUT,
    MRM_FILE_MTIME,
    MRM_LAYOUT_INDEX,
    MRM_LAYOUT_DATA,
    MRM_NAME_TEMPLATE,
    MRM_NAME_INDEX,
    MRM_NAME_DATA,
    MRM_CLASS_NAMES,
    MRM_FIELDS,
    MRM_FIELD_DATA,
    MRM_SECTION_COUNT
};

#endif
