/* library_types.h of the emulator: the types of elements that cuBLASLt is given. */
#ifndef DTCU_EMULATED_LIBRARY_TYPES_H
#define DTCU_EMULATED_LIBRARY_TYPES_H
typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType;
#endif
